    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x78
    mov QWORD PTR [rsp+0x70],r8
    mov r15,rcx
    mov r13,rdx
    mov r14,rdi
    mov rax,QWORD PTR [rsi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    mov QWORD PTR [rsp+0x10],rdi
    jne 17
    mov rcx,QWORD PTR [rsi+0x78]
    xor r12d,r12d
    mov rax,QWORD PTR [_ZN7mlx5_cq4kind5FACTS]
    jmp 2
0:
    xor r10d,r10d
1:
    inc r12
    add rdi,r8
    add rdi,r10
    add QWORD PTR [r9],rdi
    cmp r12,0x20
    je 21
2:
    mov rdx,rcx
    mov edi,DWORD PTR [rcx+0x3c]
    bswap edi
    xor edi,DWORD PTR [rsi+0x158]
    test dil,0xfd
    je 3
    test dil,0x1
    jne 22
    test dil,0xc
    jne 18
    lea ecx,[rdi-0x10]
    cmp cl,0x3f
    ja 18
    mov ecx,DWORD PTR [rdx+0x20]
    cmp QWORD PTR [rsi+0x40],rcx
    jne 4
    mov r8,QWORD PTR [rsi+0x48]
    jmp 5
3:
    mov r8d,DWORD PTR [rdx+0x20]
    cmp QWORD PTR [rsi+0x30],r8
    jne 10
    mov rcx,QWORD PTR [rsi+0x38]
    movzx r11d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r11w,r8w
    jne 11
    jmp 18
4:
    mov r8,QWORD PTR [rsi+0xa8]
    mov r11d,ecx
    bswap r11d
    mov r8,QWORD PTR [r8+0x10]
    mov r10d,r11d
    shr r10d,0x9
    and r10d,0x7ff8
    mov r10,QWORD PTR [r8+r10*1]
    test r10,r10
    je 18
    and r11d,0xfff
    shl r11d,0x4
    mov r8,QWORD PTR [r10+r11*1+0x8]
    cmp r8,0x2
    jb 18
    add r10,r11
    mov r11,QWORD PTR [r10]
    shr r11,0x20
    cmp DWORD PTR [rsi+0x15c],r11d
    jne 18
    mov r10,QWORD PTR [r10+0x8]
    test r8,r8
    je 18
    cmp r10,r8
    jne 18
    mov QWORD PTR [rsi+0x40],rcx
    mov QWORD PTR [rsi+0x48],r8
5:
    mov ecx,edi
    shr ecx,0x10
    mov r10,QWORD PTR [r8+0x190]
    test r10,r10
    je 6
    cmp r10d,0x1
    jne 18
    mov r10,QWORD PTR [r8+0x198]
    cmp QWORD PTR [r10+0x28],rcx
    jbe 18
    mov r8,QWORD PTR [r10+0x20]
    movzx r11d,BYTE PTR [r8+rcx*1]
    test r11b,r11b
    je 18
    xor r11d,r11d
    xchg BYTE PTR [r8+rcx*1],r11b
    test r11b,r11b
    je 18
    mov r8,QWORD PTR [r10+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r11d,edi
    shr r11d,0x16
    mov ebx,0x1
    shl rbx,cl
    mov rcx,QWORD PTR [r10+0x30]
    lock or QWORD PTR [rcx+r11*8],rbx
    mov rcx,QWORD PTR [r10+0x40]
    mov BYTE PTR [rcx+r11*1],0x1
    mov rcx,QWORD PTR [r10+0x50]
    mov r10d,edi
    shr r10d,0x1c
    mov BYTE PTR [rcx+r10*1],0x1
    jmp 7
6:
    mov r10,QWORD PTR [r8+0x198]
    mov r11d,DWORD PTR [r10+0x100]
    movzx r8d,WORD PTR [r10+0x80]
    cmp r11d,ecx
    jne 18
    cmp r8w,cx
    je 18
    mov r8,QWORD PTR [r10+0x180]
    mov r11d,DWORD PTR [r10+0x188]
    dec r11d
    and r11d,ecx
    mov r8,QWORD PTR [r8+r11*8]
    inc ecx
    mov DWORD PTR [r10+0x100],ecx
7:
    shr dil,0x4
    or dil,0x80
    mov r10d,edi
    mov rcx,QWORD PTR [rsi+0x50]
    add rcx,rdx
    cmp rcx,QWORD PTR [rsi+0x88]
    je 14
8:
    movzx r11d,WORD PTR [rsi+0x164]
    movzx edi,r10b
    cmp BYTE PTR [rax+rdi*4+0x2],0x1
    jne 15
9:
    mov edi,DWORD PTR [rdx+0x2c]
    bswap edi
    and r10b,0xa0
    neg r10b
    jo 16
    jmp 0
10:
    mov rcx,QWORD PTR [rsi+0xa8]
    mov r10d,r8d
    bswap r10d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r11d,r10d
    shr r11d,0x9
    and r11d,0x7ff8
    mov r11,QWORD PTR [rcx+r11*1]
    test r11,r11
    je 18
    and r10d,0xfff
    shl r10d,0x4
    mov rcx,QWORD PTR [r11+r10*1+0x8]
    cmp rcx,0x2
    jb 18
    add r11,r10
    mov r10,QWORD PTR [r11]
    cmp DWORD PTR [rsi+0x15c],r10d
    jne 18
    mov r10,QWORD PTR [r11+0x8]
    test rcx,rcx
    je 18
    cmp r10,rcx
    jne 18
    mov QWORD PTR [rsi+0x30],r8
    mov QWORD PTR [rsi+0x38],rcx
    movzx r11d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r11w,r8w
    je 18
11:
    shr edi,0x10
    movzx r8d,r11w
    mov rbx,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x110]
    shl r8d,0x4
    mov r10,QWORD PTR [rbx+r8*1+0x8]
    mov r8,QWORD PTR [rbx+r8*1]
    mov r14,r10
    shr r14,0x28
    cmp di,r14w
    jne 12
    mov r14,QWORD PTR [rsp+0x10]
    jmp 13
12:
    mov ebx,edi
    sub ebx,r14d
    movzx r8d,WORD PTR [rcx]
    sub r8d,r11d
    cmp bx,r8w
    mov r14,QWORD PTR [rsp+0x10]
    jae 18
    add ebx,r11d
    mov r8,QWORD PTR [rcx+0x100]
    mov r10d,ebx
    and r10d,DWORD PTR [rcx+0x110]
    movzx r11d,r10w
    shl r11d,0x4
    mov r10,QWORD PTR [r8+r11*1+0x8]
    mov r8,QWORD PTR [r8+r11*1]
    mov r14,r10
    shr r14,0x28
    mov r11d,ebx
    cmp di,r14w
    mov r14,QWORD PTR [rsp+0x10]
    jne 18
13:
    inc r11d
    mov WORD PTR [rcx+0x80],r11w
    shr r10,0x20
    mov rcx,QWORD PTR [rsi+0x50]
    add rcx,rdx
    cmp rcx,QWORD PTR [rsi+0x88]
    jne 8
14:
    xor BYTE PTR [rsi+0x158],0x1
    mov rcx,QWORD PTR [rsi+0x80]
    movzx r11d,WORD PTR [rsi+0x164]
    movzx edi,r10b
    cmp BYTE PTR [rax+rdi*4+0x2],0x1
    je 9
15:
    xor edi,edi
    and r10b,0xa0
    neg r10b
    jno 0
16:
    and r11d,0x4800
    movzx r11d,r11w
    mov r10d,0x0
    cmp r11d,0x800
    je 1
    movzx edx,WORD PTR [rdx+0x1c]
    and edx,0xc06
    xor r10d,r10d
    cmp edx,0x806
    sete r10b
    jmp 1
17:
    xor ebp,ebp
    mov ecx,0x20
    mov rdi,rsi
    mov rsi,r9
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    mov r12,rdx
    test al,0x1
    jne 24
    jmp 40
18:
    mov QWORD PTR [rsi+0x78],rdx
    test r12d,r12d
    je 19
    mov eax,DWORD PTR [rsi+0x150]
    imul eax,r12d
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
19:
    mov ecx,0x20
    mov rdi,rsi
    mov rsi,r9
    mov rdx,r12
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    cmp rax,0x1
    jne 20
    mov r12,rdx
    jmp 24
20:
    xor ebp,ebp
    jmp 40
21:
    mov QWORD PTR [rsi+0x78],rcx
    mov eax,0x20
    mov r12d,0x20
    jmp 23
22:
    mov QWORD PTR [rsi+0x78],rdx
    test r12d,r12d
    je 43
    mov eax,r12d
23:
    imul eax,DWORD PTR [rsi+0x150]
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
24:
    mov rax,QWORD PTR [r14+0x140]
    test rax,rax
    je 35
    mov eax,DWORD PTR [rax]
    test al,0x2
    je 44
    test r15,r15
    je 38
    mov QWORD PTR [rsp+0x60],r12
    shl r15,0x4
    add r15,r13
    movzx ebx,WORD PTR [r14+0x17c]
    movzx eax,WORD PTR [r14+0x17e]
    mov WORD PTR [rsp+0xe],ax
    xor ebp,ebp
    mov QWORD PTR [rsp+0x48],rbx
    jmp 28
25:
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [rsi+0x10],xmm0
26:
    bswap edx
    bswap rax
    bswap ecx
    mov DWORD PTR [rsi],edx
    mov DWORD PTR [rsi+0x4],ecx
    mov QWORD PTR [rsi+0x8],rax
27:
    mov rax,QWORD PTR [rsp+0x68]
    mov QWORD PTR [r14+rbx*8],rax
    mov r14,QWORD PTR [rsp+0x10]
    mov r15,r12
    mov rbx,QWORD PTR [rsp+0x48]
    inc rbp
    add r13,0x10
    cmp r13,r15
    je 37
28:
    mov r12,r15
    lea r15,[rbx+rbp*1]
    mov rax,QWORD PTR [rsp+0x70]
    add rax,rbp
    mov QWORD PTR [rsp+0x68],rax
    mov rax,QWORD PTR [r13+0x0]
    mov edx,DWORD PTR [r13+0x8]
    mov ecx,DWORD PTR [r13+0xc]
    movzx edi,WORD PTR [rsp+0xe]
    cmp r15w,di
    jne 29
    mov QWORD PTR [rsp+0x18],rax
    mov DWORD PTR [rsp+0x20],edx
    mov DWORD PTR [rsp+0x24],ecx
    mov rsi,QWORD PTR [r14+0x160]
    mov esi,DWORD PTR [rsi+0x100]
    add si,WORD PTR [r14+0x168]
    mov WORD PTR [r14+0x17e],si
    cmp si,di
    je 41
    lea edi,[rdx-0x1]
    cmp edi,DWORD PTR [r14+0x174]
    setb dil
    mov WORD PTR [rsp+0xe],si
    jmp 32
29:
    lea esi,[rdx-0x1]
    cmp esi,DWORD PTR [r14+0x174]
    jae 31
    movzx esi,WORD PTR [r14+0x178]
    and esi,r15d
    mov edi,DWORD PTR [r14+0x170]
    imul rdi,rsi
    add rdi,QWORD PTR [r14+0x148]
    cmp DWORD PTR [r14+0x16c],0x2
    jb 30
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [rdi+0x10],xmm0
30:
    bswap edx
    bswap ecx
    bswap rax
    mov DWORD PTR [rdi],edx
    mov DWORD PTR [rdi+0x4],ecx
    mov QWORD PTR [rdi+0x8],rax
    mov rax,QWORD PTR [r14+0x150]
    mov rcx,QWORD PTR [rsp+0x68]
    mov QWORD PTR [rax+rsi*8],rcx
    mov r15,r12
    inc rbp
    add r13,0x10
    cmp r13,r15
    jne 28
    jmp 37
31:
    mov QWORD PTR [rsp+0x18],rax
    mov DWORD PTR [rsp+0x20],edx
    mov DWORD PTR [rsp+0x24],ecx
    xor edi,edi
32:
    movzx ebx,WORD PTR [r14+0x178]
    and ebx,r15d
    mov r8d,DWORD PTR [r14+0x16c]
    mov esi,DWORD PTR [r14+0x170]
    imul rsi,rbx
    add rsi,QWORD PTR [r14+0x148]
    mov r14,QWORD PTR [r14+0x150]
    cmp r8d,0x2
    jb 33
    test dil,dil
    jne 25
    mov ecx,0x1
    lea rdi,[rsp+0x54]
    lea rdx,[rsp+0x18]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue18write_scatter_list]
    jmp 34
33:
    test dil,dil
    jne 26
    mov ecx,0x1
    lea rdi,[rsp+0x54]
    lea rdx,[rsp+0x18]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue18write_scatter_list]
34:
    movzx eax,BYTE PTR [rsp+0x54]
    cmp al,0x1f
    je 27
    mov ecx,DWORD PTR [rsp+0x5c]
    mov DWORD PTR [rsp+0x3f],ecx
    mov rcx,QWORD PTR [rsp+0x55]
    mov QWORD PTR [rsp+0x38],rcx
    mov rcx,QWORD PTR [rsp+0x38]
    mov QWORD PTR [rsp+0x28],rcx
    mov ecx,DWORD PTR [rsp+0x3f]
    mov DWORD PTR [rsp+0x2f],ecx
    mov r14,QWORD PTR [rsp+0x10]
    mov rbx,QWORD PTR [rsp+0x48]
    jmp 42
35:
    test r15,r15
    je 38
    mov BYTE PTR [rsp+0x18],0x7
36:
    lea rsi,[rsp+0x18]
    xor edi,edi
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error9ListError3new]
    jmp 39
37:
    xor eax,eax
    movzx ecx,WORD PTR [r14+0x17c]
    xor edx,edx
    sub dx,cx
    add edx,ebx
    mov ecx,ebp
    add cx,dx
    mov r12,QWORD PTR [rsp+0x60]
    je 39
    add rbx,rbp
    mov WORD PTR [r14+0x17c],bx
    mov rax,QWORD PTR [r14+0x160]
    mov WORD PTR [rax+0x80],bx
    mov rax,QWORD PTR [r14+0x158]
    movzx ecx,bx
    bswap ecx
    mov DWORD PTR [rax],ecx
38:
    xor eax,eax
39:
    xor ebp,ebp
    test rax,rax
    sete bpl
40:
    mov rax,rbp
    mov rdx,r12
    add rsp,0x78
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
41:
    movabs rax,0x100000000000000
    mov QWORD PTR [rsp+0x28],rax
    mov DWORD PTR [rsp+0x2f],0x1
    xor eax,eax
42:
    mov BYTE PTR [rsp+0x38],al
    mov rax,QWORD PTR [rsp+0x28]
    mov QWORD PTR [rsp+0x39],rax
    mov eax,DWORD PTR [rsp+0x2f]
    mov DWORD PTR [rsp+0x40],eax
    lea rsi,[rsp+0x38]
    mov edi,ebp
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error9ListError3new]
    mov r12,QWORD PTR [rsp+0x60]
    xor ecx,ecx
    sub cx,WORD PTR [r14+0x17c]
    add ebx,ecx
    add bp,bx
    je 39
    mov WORD PTR [r14+0x17c],r15w
    mov rcx,QWORD PTR [r14+0x160]
    mov WORD PTR [rcx+0x80],r15w
    mov rcx,QWORD PTR [r14+0x158]
    movzx edx,r15w
    bswap edx
    mov DWORD PTR [rcx],edx
    jmp 39
43:
    test r12,r12
    jne 24
    dec DWORD PTR [rsi+0x168]
    je 45
    xor r12d,r12d
    jmp 24
44:
    add r14,0x140
    mov rdi,r14
    call QWORD PTR [_ZN8mlx5_wqe4gate4Gate7refusal]
    mov ecx,eax
    sub cl,0x7
    movzx ecx,cl
    mov edx,0x3
    cmovae edx,ecx
    movzx ecx,dl
    lea rdx,[data]
    movsxd rcx,DWORD PTR [rdx+rcx*4]
    add rcx,rdx
    jmp rcx
    mov al,0x1e
    mov BYTE PTR [rsp+0x18],al
    jmp 36
    mov al,0x1b
    mov BYTE PTR [rsp+0x18],al
    jmp 36
    mov BYTE PTR [rsp+0x19],al
    mov al,0x1c
    mov BYTE PTR [rsp+0x18],al
    jmp 36
    mov al,0x1d
    mov BYTE PTR [rsp+0x18],al
    jmp 36
45:
    mov rdi,rsi
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    xor r12d,r12d
    jmp 24
    jmp 46
    jmp 46
46:
    xor ecx,ecx
    mov rdx,QWORD PTR [rsp+0x10]
    sub cx,WORD PTR [rdx+0x17c]
    mov rdx,QWORD PTR [rsp+0x48]
    add edx,ecx
    add bp,dx
    je 47
    mov rdx,QWORD PTR [rsp+0x10]
    mov WORD PTR [rdx+0x17c],r15w
    mov rcx,QWORD PTR [rdx+0x160]
    mov WORD PTR [rcx+0x80],r15w
    mov rcx,QWORD PTR [rdx+0x158]
    movzx edx,r15w
    bswap edx
    mov DWORD PTR [rcx],edx
47:
    mov rdi,rax
    call _Unwind_Resume@plt
