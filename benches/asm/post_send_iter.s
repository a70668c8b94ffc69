    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r13,rdx
    mov r15,rsi
    mov QWORD PTR [rsp+0x10],rdi
    cmp QWORD PTR [rsi+0x40],0x0
    jne 103
0:
    mov esi,DWORD PTR [r15+0x58]
    mov edx,DWORD PTR [r15+0x5c]
    mov rax,QWORD PTR [r15+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 1
    lea eax,[rsi-0x1]
    mov DWORD PTR [r15+0x60],eax
1:
    test rcx,rcx
    je 89
    shl rcx,0x7
    lea rax,[rcx+r13*1]
    mov QWORD PTR [rsp+0x30],rax
    add rcx,0xffffffffffffff80
    shr rcx,0x7
    inc rcx
    mov QWORD PTR [rsp+0x18],rcx
    xor r14d,r14d
    mov DWORD PTR [rsp+0x24],edx
    mov rax,rsi
    mov QWORD PTR [rsp+0x28],rsi
2:
    movzx ecx,BYTE PTR [r13+0x28]
    cmp rcx,0x5
    ja 3
    lea rsi,[data]
    movsxd rcx,DWORD PTR [rsi+rcx*4]
    add rcx,rsi
    jmp rcx
    mov r9,QWORD PTR [r13+0x60]
    movzx r8d,BYTE PTR [r13+0x78]
    movzx ecx,BYTE PTR [r13+0x8]
    cmp ecx,0x2
    je 18
    cmp ecx,0x1
    je 14
    test ecx,ecx
    jne 22
    mov r11,QWORD PTR [r13+0x10]
    mov r10,QWORD PTR [r13+0x18]
    cmp r10,0x1
    jne 37
    mov r10,QWORD PTR [r11]
    mov r11,QWORD PTR [r11+0x8]
    test r8b,0x75
    jne 82
    lea ecx,[r11-0x1]
    cmp ecx,DWORD PTR [r15+0x78]
    jae 82
    cmp DWORD PTR [r15+0x60],eax
    js 82
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    rol r11,0x20
    bswap r11
    bswap r10
    mov QWORD PTR [rcx+0x10],r11
    mov QWORD PTR [rcx+0x18],r10
    movzx esi,ax
    shl rsi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs rdi,0xa00000002
    or rsi,rdi
    lea rdi,[r8+rsi*1]
    dec rdi
    jmp 5
3:
    mov rdi,r15
    mov esi,eax
    mov rcx,r13
    call QWORD PTR [_ZN8mlx5_wqe4send4list16push_out_of_line]
    jmp 42
    mov r10,QWORD PTR [r13+0x30]
    mov r11d,DWORD PTR [r13+0x38]
    mov r9,QWORD PTR [r13+0x60]
    movzx r8d,BYTE PTR [r13+0x78]
    movzx ecx,BYTE PTR [r13+0x8]
    cmp ecx,0x2
    je 11
    cmp ecx,0x1
    je 9
    test ecx,ecx
    jne 13
    mov r12,QWORD PTR [r13+0x10]
    mov rbx,QWORD PTR [r13+0x18]
    cmp rbx,0x1
    jne 32
    mov rbx,QWORD PTR [r12]
    mov r12,QWORD PTR [r12+0x8]
    test r8b,0x77
    jne 77
    lea ecx,[r12-0x1]
    cmp ecx,DWORD PTR [r15+0x78]
    jae 77
    cmp DWORD PTR [r15+0x60],eax
    js 77
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    rol r12,0x20
    bswap r12
    bswap rbx
    mov QWORD PTR [rcx+0x20],r12
    mov QWORD PTR [rcx+0x28],rbx
    movzx esi,ax
    shl rsi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs rdi,0x800000003
    or rsi,rdi
    lea rdi,[r8+rsi*1]
    add rdi,0xfffffffffffffffe
    jmp 5
    mov r9d,DWORD PTR [r13+0x29]
    mov r10,QWORD PTR [r13+0x60]
    movzx r8d,BYTE PTR [r13+0x78]
    movzx ecx,BYTE PTR [r13+0x8]
    cmp ecx,0x2
    je 20
    cmp ecx,0x1
    je 16
    test ecx,ecx
    jne 25
    mov rbx,QWORD PTR [r13+0x10]
    mov r11,QWORD PTR [r13+0x18]
    cmp r11,0x1
    jne 39
    mov r11,QWORD PTR [rbx]
    mov rbx,QWORD PTR [rbx+0x8]
    test r8b,0x75
    jne 84
    lea ecx,[rbx-0x1]
    cmp ecx,DWORD PTR [r15+0x78]
    jae 84
    cmp DWORD PTR [r15+0x60],eax
    js 84
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    rol rbx,0x20
    bswap rbx
    bswap r11
    mov QWORD PTR [rcx+0x10],rbx
    mov QWORD PTR [rcx+0x18],r11
    movzx esi,ax
    shl rsi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl r9,0x20
    movabs rdi,0xb00000002
    or rsi,rdi
    lea rdi,[r8+rsi*1]
    dec rdi
    jmp 4
    mov r11,QWORD PTR [r13+0x30]
    mov ebx,DWORD PTR [r13+0x38]
    mov r9d,DWORD PTR [r13+0x29]
    mov r10,QWORD PTR [r13+0x60]
    movzx r8d,BYTE PTR [r13+0x78]
    movzx ecx,BYTE PTR [r13+0x8]
    cmp ecx,0x2
    je 26
    cmp ecx,0x1
    je 23
    test ecx,ecx
    jne 28
    mov rbp,QWORD PTR [r13+0x10]
    mov r12,QWORD PTR [r13+0x18]
    cmp r12,0x1
    jne 41
    mov r12,QWORD PTR [rbp+0x0]
    mov rbp,QWORD PTR [rbp+0x8]
    test r8b,0x75
    jne 86
    lea ecx,[rbp-0x1]
    cmp ecx,DWORD PTR [r15+0x78]
    jae 86
    cmp DWORD PTR [r15+0x60],eax
    js 86
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r11
    bswap ebx
    mov QWORD PTR [rcx+0x10],r11
    mov QWORD PTR [rcx+0x18],rbx
    rol rbp,0x20
    bswap rbp
    bswap r12
    mov QWORD PTR [rcx+0x20],rbp
    mov QWORD PTR [rcx+0x28],r12
    movzx esi,ax
    shl rsi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl r9,0x20
    movabs rdi,0x900000003
    or rsi,rdi
    lea rdi,[r8+rsi*1]
    add rdi,0xfffffffffffffffe
4:
    add rsi,QWORD PTR [r15+0x50]
    or r9,r8
    bswap rsi
    mov QWORD PTR [rcx],rsi
    mov QWORD PTR [rcx+0x8],r9
    mov rsi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rsi+r8*1],r10
    jmp 6
    movzx ecx,BYTE PTR [r13+0x8]
    test ecx,ecx
    jne 7
    mov r10,QWORD PTR [r13+0x30]
    mov r11d,DWORD PTR [r13+0x38]
    mov r9,QWORD PTR [r13+0x60]
    movzx r8d,BYTE PTR [r13+0x78]
    mov r12,QWORD PTR [r13+0x10]
    mov rbx,QWORD PTR [r13+0x18]
    cmp rbx,0x1
    jne 8
    mov rbx,QWORD PTR [r12]
    mov r12,QWORD PTR [r12+0x8]
    test r8b,0x77
    jne 74
    lea ecx,[r12-0x1]
    cmp ecx,DWORD PTR [r15+0x78]
    jae 74
    cmp DWORD PTR [r15+0x60],eax
    js 74
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    rol r12,0x20
    bswap r12
    bswap rbx
    mov QWORD PTR [rcx+0x20],r12
    mov QWORD PTR [rcx+0x28],rbx
    movzx esi,ax
    shl rsi,0x28
    movabs rdi,0x1000000003
    or rsi,rdi
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    lea rdi,[r8+rsi*1]
    add rdi,0xfffffffffffffffe
5:
    add rsi,QWORD PTR [r15+0x50]
    bswap rsi
    mov QWORD PTR [rcx],rsi
    mov QWORD PTR [rcx+0x8],r8
    mov rsi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rsi+r8*1],r9
6:
    mov QWORD PTR [rsi+r8*1+0x8],rdi
    inc eax
    inc edx
    inc r14
    cmp QWORD PTR [r15+0x40],0x0
    je 43
    jmp 104
7:
    dec ecx
    cmp ecx,0x2
    jb 29
    mov BYTE PTR [rsp+0x4],0xe
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
8:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push rbx
    push r12
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
9:
    mov rbx,QWORD PTR [r13+0x10]
    mov r12,QWORD PTR [r13+0x18]
    cmp r12,0x1
    jne 30
    mov r12,QWORD PTR [rbx]
    mov rbx,QWORD PTR [rbx+0x8]
    test r8b,0x77
    jne 75
    lea rcx,[rbx-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 75
    cmp DWORD PTR [r15+0x60],eax
    js 75
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    mov esi,ebx
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x20],esi
    cmp rbx,0x7
    jbe 44
    mov rsi,QWORD PTR [rbx+r12*1-0x8]
    mov QWORD PTR [rcx+rbx*1+0x1c],rsi
    cmp rbx,0x8
    je 53
    mov esi,0x8
    xor edi,edi
10:
    mov r10,QWORD PTR [r12+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x24],r10
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,rbx
    jb 10
    jmp 53
11:
    mov rbx,QWORD PTR [r13+0x10]
    mov r12,QWORD PTR [r13+0x18]
    cmp r12,0x1
    jne 31
    mov r12,QWORD PTR [rbx]
    mov ebx,DWORD PTR [rbx+0x8]
    test r8b,0x77
    jne 76
    lea rcx,[rbx-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 76
    cmp DWORD PTR [r15+0x60],eax
    js 76
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    mov esi,ebx
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x20],esi
    cmp ebx,0x7
    jbe 45
    mov rsi,QWORD PTR [rbx+r12*1-0x8]
    mov QWORD PTR [rcx+rbx*1+0x1c],rsi
    cmp rbx,0x8
    je 55
    mov esi,0x8
    xor edi,edi
12:
    mov r10,QWORD PTR [r12+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x24],r10
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,rbx
    jb 12
    jmp 55
13:
    mov BYTE PTR [rsp+0x4],0xe
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
14:
    mov r10,QWORD PTR [r13+0x10]
    mov r11,QWORD PTR [r13+0x18]
    cmp r11,0x1
    jne 33
    mov r11,QWORD PTR [r10]
    mov r10,QWORD PTR [r10+0x8]
    test r8b,0x75
    jne 78
    lea rcx,[r10-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 78
    cmp DWORD PTR [r15+0x60],eax
    js 78
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    mov esi,r10d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x10],esi
    cmp r10,0x7
    jbe 46
    mov rsi,QWORD PTR [r10+r11*1-0x8]
    mov QWORD PTR [rcx+r10*1+0xc],rsi
    cmp r10,0x8
    je 58
    mov esi,0x8
    xor edi,edi
    xchg ax,ax
15:
    mov rbx,QWORD PTR [r11+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x14],rbx
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r10
    jb 15
    jmp 58
16:
    mov r11,QWORD PTR [r13+0x10]
    mov rbx,QWORD PTR [r13+0x18]
    cmp rbx,0x1
    jne 34
    mov rbx,QWORD PTR [r11]
    mov r11,QWORD PTR [r11+0x8]
    test r8b,0x75
    jne 79
    lea rcx,[r11-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 79
    cmp DWORD PTR [r15+0x60],eax
    js 79
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    mov esi,r11d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x10],esi
    cmp r11,0x7
    jbe 47
    mov rsi,QWORD PTR [r11+rbx*1-0x8]
    mov QWORD PTR [rcx+r11*1+0xc],rsi
    cmp r11,0x8
    je 60
    mov esi,0x8
    xor edi,edi
17:
    mov r12,QWORD PTR [rbx+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x14],r12
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r11
    jb 17
    jmp 60
18:
    mov r10,QWORD PTR [r13+0x10]
    mov r11,QWORD PTR [r13+0x18]
    cmp r11,0x1
    jne 35
    mov r11,QWORD PTR [r10]
    mov r10d,DWORD PTR [r10+0x8]
    test r8b,0x75
    jne 80
    lea rcx,[r10-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 80
    cmp DWORD PTR [r15+0x60],eax
    js 80
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    mov esi,r10d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x10],esi
    cmp r10d,0x7
    jbe 48
    mov rsi,QWORD PTR [r10+r11*1-0x8]
    mov QWORD PTR [rcx+r10*1+0xc],rsi
    cmp r10,0x8
    je 62
    mov esi,0x8
    xor edi,edi
19:
    mov rbx,QWORD PTR [r11+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x14],rbx
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r10
    jb 19
    jmp 62
20:
    mov r11,QWORD PTR [r13+0x10]
    mov rbx,QWORD PTR [r13+0x18]
    cmp rbx,0x1
    jne 36
    mov rbx,QWORD PTR [r11]
    mov r11d,DWORD PTR [r11+0x8]
    test r8b,0x75
    jne 81
    lea rcx,[r11-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 81
    cmp DWORD PTR [r15+0x60],eax
    js 81
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    mov esi,r11d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x10],esi
    cmp r11d,0x7
    jbe 49
    mov rsi,QWORD PTR [r11+rbx*1-0x8]
    mov QWORD PTR [rcx+r11*1+0xc],rsi
    cmp r11,0x8
    je 65
    mov esi,0x8
    xor edi,edi
21:
    mov r12,QWORD PTR [rbx+rdi*1]
    mov QWORD PTR [rcx+rdi*1+0x14],r12
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r11
    jb 21
    jmp 65
22:
    mov BYTE PTR [rsp+0x4],0xe
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
23:
    mov r12,QWORD PTR [r13+0x10]
    mov rbp,QWORD PTR [r13+0x18]
    cmp rbp,0x1
    jne 38
    mov rbp,QWORD PTR [r12]
    mov r12,QWORD PTR [r12+0x8]
    test r8b,0x75
    jne 83
    lea rcx,[r12-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 83
    cmp DWORD PTR [r15+0x60],eax
    js 83
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r11
    bswap ebx
    mov QWORD PTR [rcx+0x10],r11
    mov QWORD PTR [rcx+0x18],rbx
    mov esi,r12d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x20],esi
    cmp r12,0x7
    jbe 50
    mov rsi,QWORD PTR [r12+rbp*1-0x8]
    mov QWORD PTR [rcx+r12*1+0x1c],rsi
    cmp r12,0x8
    je 68
    mov esi,0x8
    xor edi,edi
    xchg ax,ax
24:
    mov r11,QWORD PTR [rbp+rdi*1+0x0]
    mov QWORD PTR [rcx+rdi*1+0x24],r11
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r12
    jb 24
    jmp 68
25:
    mov BYTE PTR [rsp+0x4],0xe
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
26:
    mov r12,QWORD PTR [r13+0x10]
    mov rbp,QWORD PTR [r13+0x18]
    cmp rbp,0x1
    jne 40
    mov rbp,QWORD PTR [r12]
    mov r12d,DWORD PTR [r12+0x8]
    test r8b,0x75
    jne 85
    lea rcx,[r12-0x1]
    cmp rcx,QWORD PTR [r15+0x70]
    jae 85
    cmp DWORD PTR [r15+0x60],eax
    js 85
    mov ecx,DWORD PTR [r15+0x64]
    and ecx,eax
    shl rcx,0x6
    add rcx,QWORD PTR [r15]
    bswap r11
    bswap ebx
    mov QWORD PTR [rcx+0x10],r11
    mov QWORD PTR [rcx+0x18],rbx
    mov esi,r12d
    or esi,0x80000000
    bswap esi
    mov DWORD PTR [rcx+0x20],esi
    cmp r12d,0x7
    jbe 51
    mov rsi,QWORD PTR [r12+rbp*1-0x8]
    mov QWORD PTR [rcx+r12*1+0x1c],rsi
    cmp r12,0x8
    je 70
    mov esi,0x8
    xor edi,edi
27:
    mov r11,QWORD PTR [rbp+rdi*1+0x0]
    mov QWORD PTR [rcx+rdi*1+0x24],r11
    mov rdi,rsi
    add rsi,0x8
    cmp rsi,r12
    jb 27
    jmp 70
28:
    mov BYTE PTR [rsp+0x4],0xe
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
29:
    mov BYTE PTR [rsp+0x4],0x8
    mov rdi,r15
    mov esi,eax
    lea rcx,[rsp+0x4]
    call _ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$6refuse
    jmp 42
30:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r12
    push rbx
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
31:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r12
    push rbx
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
32:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push rbx
    push r12
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
33:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
34:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
35:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
36:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
37:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r10
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
38:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbp
    push r12
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
39:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r11
    push rbx
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
40:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbp
    push r12
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
41:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r12
    push rbp
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    xchg ax,ax
42:
    xor ecx,ecx
    inc r14
    cmp QWORD PTR [r15+0x40],0x0
    jne 104
43:
    sub r13,0xffffffffffffff80
    cmp r13,QWORD PTR [rsp+0x30]
    jne 2
    jmp 87
44:
    cmp rbx,0x3
    jbe 52
    mov esi,DWORD PTR [r12]
    mov DWORD PTR [rcx+0x24],esi
    mov esi,DWORD PTR [rbx+r12*1-0x4]
    mov DWORD PTR [rcx+rbx*1+0x20],esi
    jmp 53
45:
    cmp ebx,0x3
    jbe 54
    mov esi,DWORD PTR [r12]
    mov DWORD PTR [rcx+0x24],esi
    mov esi,DWORD PTR [rbx+r12*1-0x4]
    mov DWORD PTR [rcx+rbx*1+0x20],esi
    jmp 55
46:
    cmp r10,0x3
    jbe 57
    mov esi,DWORD PTR [r11]
    mov DWORD PTR [rcx+0x14],esi
    mov esi,DWORD PTR [r10+r11*1-0x4]
    mov DWORD PTR [rcx+r10*1+0x10],esi
    jmp 58
47:
    cmp r11,0x3
    jbe 59
    mov esi,DWORD PTR [rbx]
    mov DWORD PTR [rcx+0x14],esi
    mov esi,DWORD PTR [r11+rbx*1-0x4]
    mov DWORD PTR [rcx+r11*1+0x10],esi
    jmp 60
48:
    cmp r10d,0x3
    jbe 61
    mov esi,DWORD PTR [r11]
    mov DWORD PTR [rcx+0x14],esi
    mov esi,DWORD PTR [r10+r11*1-0x4]
    mov DWORD PTR [rcx+r10*1+0x10],esi
    jmp 62
49:
    cmp r11d,0x3
    jbe 64
    mov esi,DWORD PTR [rbx]
    mov DWORD PTR [rcx+0x14],esi
    mov esi,DWORD PTR [r11+rbx*1-0x4]
    mov DWORD PTR [rcx+r11*1+0x10],esi
    jmp 65
50:
    cmp r12,0x3
    jbe 67
    mov esi,DWORD PTR [rbp+0x0]
    mov DWORD PTR [rcx+0x24],esi
    mov esi,DWORD PTR [r12+rbp*1-0x4]
    mov DWORD PTR [rcx+r12*1+0x20],esi
    jmp 68
51:
    cmp r12d,0x3
    jbe 69
    mov esi,DWORD PTR [rbp+0x0]
    mov DWORD PTR [rcx+0x24],esi
    mov esi,DWORD PTR [r12+rbp*1-0x4]
    mov DWORD PTR [rcx+r12*1+0x20],esi
    jmp 70
52:
    movzx esi,BYTE PTR [r12]
    mov BYTE PTR [rcx+0x24],sil
    mov rsi,rbx
    shr rsi,1
    movzx edi,BYTE PTR [r12+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x24],dil
    movzx esi,BYTE PTR [r12+rbx*1-0x1]
    mov BYTE PTR [rcx+rbx*1+0x23],sil
53:
    add rbx,0x3
    shr rbx,0x4
    lea esi,[rbx+0x6]
    shr esi,0x2
    movzx edi,ax
    shl rdi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs r10,0x800000003
    or rdi,r10
    lea r10,[rsi+r8*1]
    add rbx,QWORD PTR [r15+0x50]
    add r10,rdi
    add r10,0xfffffffffffffffd
    add rbx,rdi
    bswap rbx
    jmp 56
54:
    movzx esi,BYTE PTR [r12]
    mov BYTE PTR [rcx+0x24],sil
    mov esi,ebx
    shr esi,1
    movzx edi,BYTE PTR [r12+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x24],dil
    movzx esi,BYTE PTR [r12+rbx*1-0x1]
    mov BYTE PTR [rcx+rbx*1+0x23],sil
55:
    add rbx,0x3
    shr rbx,0x4
    lea esi,[rbx+0x6]
    shr esi,0x2
    movzx edi,ax
    shl rdi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs r10,0x800000003
    or rdi,r10
    lea r10,[rsi+r8*1]
    add rbx,QWORD PTR [r15+0x50]
    add r10,rdi
    add r10,0xfffffffffffffffd
    add rbx,rdi
    bswap rbx
56:
    mov QWORD PTR [rcx],rbx
    mov QWORD PTR [rcx+0x8],r8
    mov rdi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rdi+r8*1],r9
    mov QWORD PTR [rdi+r8*1+0x8],r10
    jmp 73
57:
    movzx esi,BYTE PTR [r11]
    mov BYTE PTR [rcx+0x14],sil
    mov rsi,r10
    shr rsi,1
    movzx edi,BYTE PTR [r11+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x14],dil
    movzx esi,BYTE PTR [r11+r10*1-0x1]
    mov BYTE PTR [rcx+r10*1+0x13],sil
58:
    add r10,0x3
    shr r10,0x4
    lea esi,[r10+0x5]
    shr esi,0x2
    movzx edi,ax
    shl rdi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs r11,0xa00000002
    or rdi,r11
    lea r11,[rsi+r8*1]
    add r10,QWORD PTR [r15+0x50]
    add r11,rdi
    add r11,0xfffffffffffffffe
    add r10,rdi
    bswap r10
    jmp 63
59:
    movzx esi,BYTE PTR [rbx]
    mov BYTE PTR [rcx+0x14],sil
    mov rsi,r11
    shr rsi,1
    movzx edi,BYTE PTR [rbx+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x14],dil
    movzx esi,BYTE PTR [rbx+r11*1-0x1]
    mov BYTE PTR [rcx+r11*1+0x13],sil
60:
    add r11,0x3
    shr r11,0x4
    lea esi,[r11+0x5]
    shr esi,0x2
    movzx edi,ax
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl rdi,0x28
    shl r9,0x20
    movabs rbx,0xb00000002
    or rdi,rbx
    lea rbx,[rsi+r8*1]
    add rbx,rdi
    add rbx,0xfffffffffffffffe
    add r11,QWORD PTR [r15+0x50]
    jmp 66
61:
    movzx esi,BYTE PTR [r11]
    mov BYTE PTR [rcx+0x14],sil
    mov esi,r10d
    shr esi,1
    movzx edi,BYTE PTR [r11+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x14],dil
    movzx esi,BYTE PTR [r11+r10*1-0x1]
    mov BYTE PTR [rcx+r10*1+0x13],sil
62:
    add r10,0x3
    shr r10,0x4
    lea esi,[r10+0x5]
    shr esi,0x2
    movzx edi,ax
    shl rdi,0x28
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    movabs r11,0xa00000002
    or rdi,r11
    lea r11,[rsi+r8*1]
    add r10,QWORD PTR [r15+0x50]
    add r11,rdi
    add r11,0xfffffffffffffffe
    add r10,rdi
    bswap r10
63:
    mov QWORD PTR [rcx],r10
    mov QWORD PTR [rcx+0x8],r8
    mov rdi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rdi+r8*1],r9
    jmp 72
64:
    movzx esi,BYTE PTR [rbx]
    mov BYTE PTR [rcx+0x14],sil
    mov esi,r11d
    shr esi,1
    movzx edi,BYTE PTR [rbx+rsi*1]
    mov BYTE PTR [rcx+rsi*1+0x14],dil
    movzx esi,BYTE PTR [rbx+r11*1-0x1]
    mov BYTE PTR [rcx+r11*1+0x13],sil
65:
    add r11,0x3
    shr r11,0x4
    lea esi,[r11+0x5]
    shr esi,0x2
    movzx edi,ax
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl rdi,0x28
    shl r9,0x20
    movabs rbx,0xb00000002
    or rdi,rbx
    lea rbx,[rsi+r8*1]
    add rbx,rdi
    add rbx,0xfffffffffffffffe
    add r11,QWORD PTR [r15+0x50]
66:
    add r11,rdi
    bswap r11
    or r9,r8
    mov QWORD PTR [rcx],r11
    mov QWORD PTR [rcx+0x8],r9
    mov rdi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rdi+r8*1],r10
    mov QWORD PTR [rdi+r8*1+0x8],rbx
    jmp 73
67:
    movzx esi,BYTE PTR [rbp+0x0]
    mov BYTE PTR [rcx+0x24],sil
    mov rsi,r12
    shr rsi,1
    movzx edi,BYTE PTR [rbp+rsi*1+0x0]
    mov BYTE PTR [rcx+rsi*1+0x24],dil
    movzx esi,BYTE PTR [rbp+r12*1-0x1]
    mov BYTE PTR [rcx+r12*1+0x23],sil
68:
    add r12,0x3
    shr r12,0x4
    lea esi,[r12+0x6]
    shr esi,0x2
    movzx edi,ax
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl rdi,0x28
    shl r9,0x20
    movabs r11,0x900000003
    or rdi,r11
    lea r11,[rsi+r8*1]
    add r11,rdi
    add r11,0xfffffffffffffffd
    add r12,QWORD PTR [r15+0x50]
    jmp 71
69:
    movzx esi,BYTE PTR [rbp+0x0]
    mov BYTE PTR [rcx+0x24],sil
    mov esi,r12d
    shr esi,1
    movzx edi,BYTE PTR [rbp+rsi*1+0x0]
    mov BYTE PTR [rcx+rsi*1+0x24],dil
    movzx esi,BYTE PTR [rbp+r12*1-0x1]
    mov BYTE PTR [rcx+r12*1+0x23],sil
70:
    add r12,0x3
    shr r12,0x4
    lea esi,[r12+0x6]
    shr esi,0x2
    movzx edi,ax
    shl r8d,0x18
    or r8d,DWORD PTR [r15+0x68]
    shl rdi,0x28
    shl r9,0x20
    movabs r11,0x900000003
    or rdi,r11
    lea r11,[rsi+r8*1]
    add r11,rdi
    add r11,0xfffffffffffffffd
    add r12,QWORD PTR [r15+0x50]
71:
    add r12,rdi
    bswap r12
    or r9,r8
    mov QWORD PTR [rcx],r12
    mov QWORD PTR [rcx+0x8],r9
    mov rdi,QWORD PTR [r15+0x8]
    mov r8d,DWORD PTR [r15+0x64]
    and r8d,edx
    shl r8,0x4
    mov QWORD PTR [rdi+r8*1],r10
72:
    mov QWORD PTR [rdi+r8*1+0x8],r11
73:
    add esi,eax
    inc edx
    mov eax,esi
    inc r14
    cmp QWORD PTR [r15+0x40],0x0
    je 43
    jmp 104
74:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r12
    push rbx
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
75:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push rbx
    push r12
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
76:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push rbx
    push r12
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
77:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r12
    push rbx
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
78:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r10
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
79:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r11
    push rbx
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
80:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r10
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
81:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r11
    push rbx
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
82:
    mov rdi,r15
    mov esi,eax
    mov rcx,r9
    xor r9d,r9d
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
83:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r12
    push rbp
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
84:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x10
    jmp 42
85:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push r12
    push rbp
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
86:
    mov rdi,r15
    mov esi,eax
    mov rcx,r10
    push rbp
    push r12
    push rbx
    push r11
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    jmp 42
87:
    test rcx,rcx
    je 91
    mov esi,edx
    sub esi,DWORD PTR [rsp+0x24]
    cmp esi,0x1
    jne 93
    mov r8d,eax
    sub r8d,DWORD PTR [rsp+0x28]
    cmp r8d,0x1
    mov r14,QWORD PTR [rsp+0x18]
    jne 96
    cmp DWORD PTR [r15+0x6c],0x0
    je 88
    mov rsi,QWORD PTR [r15+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 98
88:
    jmp 97
89:
    xor r14d,r14d
    cmp QWORD PTR [r15+0x40],0x0
    mov eax,0x0
    mov QWORD PTR [rsp+0x18],rax
    je 92
90:
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4send4list59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$23complete_before_refused]
    jmp 102
91:
    mov esi,eax
92:
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 94
93:
    mov rdi,r15
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
94:
    mov rcx,QWORD PTR [rsp+0x10]
    mov r14,QWORD PTR [rsp+0x18]
95:
    test rax,rax
    cmovne r14,rdx
    mov QWORD PTR [rcx+0x8],r14
    mov QWORD PTR [rcx],rax
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
96:
    lea esi,[r8-0x1]
    cmp esi,DWORD PTR [r15+0x6c]
    jae 97
    mov rsi,QWORD PTR [r15+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 99
97:
    mov rdi,r15
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 102
98:
    mov DWORD PTR [r15+0x58],eax
    mov DWORD PTR [r15+0x5c],edx
    mov rsi,QWORD PTR [r15+0x38]
    mov WORD PTR [rsi],dx
    mov rdx,QWORD PTR [r15+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rax,QWORD PTR [r15+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 101
99:
    mov DWORD PTR [r15+0x58],eax
    mov DWORD PTR [r15+0x5c],edx
    mov rsi,QWORD PTR [r15+0x38]
    mov WORD PTR [rsi],dx
    mov rdx,QWORD PTR [r15+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rdi,QWORD PTR [r15+0x20]
    cmp r8d,0x2
    jne 100
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 101
100:
    mov rsi,rcx
    mov edx,r8d
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
101:
    sfence
    mov rax,QWORD PTR [r15+0x28]
    xor QWORD PTR [r15+0x20],rax
    xor eax,eax
102:
    mov rcx,QWORD PTR [rsp+0x10]
    jmp 95
103:
    mov rdi,r15
    mov rbx,rcx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rcx,rbx
    jmp 0
104:
    mov esi,eax
    jmp 90
    mov rbx,rax
    mov rdi,r15
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
