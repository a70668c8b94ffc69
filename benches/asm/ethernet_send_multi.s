    push r15
    push r14
    push r12
    push rbx
    sub rsp,0x78
    mov r14,rcx
    mov rbx,rdx
    mov r15,rdi
    mov QWORD PTR [rsp+0x8],0x0
    mov rax,QWORD PTR [rsi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 12
    mov rax,QWORD PTR [rsi+0x78]
    mov edx,DWORD PTR [rax+0x3c]
    bswap edx
    xor edx,DWORD PTR [rsi+0x158]
    test dl,0xfd
    je 1
    test dl,0x1
    jne 6
    test dl,0xc
    setne cl
    lea edi,[rdx-0x10]
    cmp dil,0x40
    setae dil
    or dil,cl
    jne 11
    mov ecx,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rsi+0x40],rcx
    jne 8
    mov rdi,QWORD PTR [rsi+0x48]
0:
    mov ecx,edx
    shr ecx,0x10
    mov r8,QWORD PTR [rdi+0x190]
    test r8,r8
    je 10
    cmp r8d,0x1
    jne 11
    mov rdi,QWORD PTR [rdi+0x198]
    cmp QWORD PTR [rdi+0x28],rcx
    jbe 11
    mov r8,QWORD PTR [rdi+0x20]
    movzx r9d,BYTE PTR [r8+rcx*1]
    test r9b,r9b
    je 11
    xor r9d,r9d
    xchg BYTE PTR [r8+rcx*1],r9b
    test r9b,r9b
    je 11
    mov r8,QWORD PTR [rdi+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r8d,edx
    shr r8d,0x16
    mov r9,QWORD PTR [rdi+0x30]
    mov r10d,0x1
    shl r10,cl
    lock or QWORD PTR [r9+r8*8],r10
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+r8*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr edx,0x1c
    mov BYTE PTR [rcx+rdx*1],0x1
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 5
    jmp 4
1:
    mov edi,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rsi+0x30],rdi
    jne 7
    mov rcx,QWORD PTR [rsi+0x38]
    movzx edi,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp di,r8w
    je 11
2:
    shr edx,0x10
    movzx r8d,di
    mov r10,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x110]
    shl r8d,0x4
    mov r9,QWORD PTR [r10+r8*1+0x8]
    mov r8,QWORD PTR [r10+r8*1]
    shr r9,0x28
    cmp dx,r9w
    jne 9
3:
    inc edi
    mov WORD PTR [rcx+0x80],di
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 5
4:
    xor BYTE PTR [rsi+0x158],0x1
    mov rax,QWORD PTR [rsi+0x80]
5:
    inc QWORD PTR [rsp+0x8]
    mov QWORD PTR [rsi+0x78],rax
    mov eax,DWORD PTR [rsi+0x150]
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    jmp 13
6:
    dec DWORD PTR [rsi+0x168]
    jne 13
    mov rdi,rsi
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    jmp 13
7:
    mov rcx,QWORD PTR [rsi+0xa8]
    mov r8d,edi
    bswap r8d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r9d,r8d
    shr r9d,0x9
    and r9d,0x7ff8
    mov r9,QWORD PTR [rcx+r9*1]
    test r9,r9
    je 11
    and r8d,0xfff
    shl r8d,0x4
    mov rcx,QWORD PTR [r9+r8*1+0x8]
    cmp rcx,0x2
    jb 11
    add r9,r8
    mov r8,QWORD PTR [r9]
    cmp DWORD PTR [rsi+0x15c],r8d
    jne 11
    mov r8,QWORD PTR [r9+0x8]
    test rcx,rcx
    je 11
    cmp r8,rcx
    jne 11
    mov QWORD PTR [rsi+0x30],rdi
    mov QWORD PTR [rsi+0x38],rcx
    movzx edi,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp di,r8w
    jne 2
    jmp 11
8:
    mov rdi,QWORD PTR [rsi+0xa8]
    mov r9d,ecx
    bswap r9d
    mov rdi,QWORD PTR [rdi+0x10]
    mov r8d,r9d
    shr r8d,0x9
    and r8d,0x7ff8
    mov r8,QWORD PTR [rdi+r8*1]
    test r8,r8
    je 11
    and r9d,0xfff
    shl r9d,0x4
    mov rdi,QWORD PTR [r8+r9*1+0x8]
    cmp rdi,0x2
    jb 11
    add r8,r9
    mov r9,QWORD PTR [r8]
    shr r9,0x20
    cmp DWORD PTR [rsi+0x15c],r9d
    jne 11
    mov r8,QWORD PTR [r8+0x8]
    test rdi,rdi
    je 11
    cmp r8,rdi
    jne 11
    mov QWORD PTR [rsi+0x40],rcx
    mov QWORD PTR [rsi+0x48],rdi
    jmp 0
9:
    mov r8d,edx
    sub r8d,r9d
    movzx r9d,WORD PTR [rcx]
    sub r9d,edi
    cmp r8w,r9w
    jae 11
    add r8d,edi
    mov edi,r8d
    and edi,DWORD PTR [rcx+0x110]
    mov r9,QWORD PTR [rcx+0x100]
    movzx edi,di
    shl edi,0x4
    mov r10,QWORD PTR [r9+rdi*1+0x8]
    mov rdi,QWORD PTR [r9+rdi*1]
    shr r10,0x28
    mov edi,r8d
    cmp dx,r10w
    je 3
    jmp 11
10:
    mov rdx,QWORD PTR [rdi+0x198]
    mov r8d,DWORD PTR [rdx+0x100]
    movzx edi,WORD PTR [rdx+0x80]
    cmp r8d,ecx
    jne 11
    cmp di,cx
    je 11
    mov rdi,QWORD PTR [rdx+0x180]
    mov r8d,DWORD PTR [rdx+0x188]
    dec r8d
    and r8d,ecx
    mov rdi,QWORD PTR [rdi+r8*8]
    inc ecx
    mov DWORD PTR [rdx+0x100],ecx
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 5
    jmp 4
11:
    mov QWORD PTR [rsi+0x78],rax
12:
    xor r12d,r12d
    lea rax,[rsp+0x8]
    mov ecx,0x1
    mov rdi,rsi
    mov rsi,rax
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    test al,0x1
    je 23
13:
    movq xmm0,QWORD PTR [r15+0x58]
    pshufd xmm0,xmm0,0x44
    mov eax,DWORD PTR [r15+0x58]
    mov rcx,QWORD PTR [r15+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    jne 14
    dec eax
    mov DWORD PTR [r15+0x60],eax
14:
    mov QWORD PTR [rsp+0x18],r15
    movdqu XMMWORD PTR [rsp+0x20],xmm0
    mov QWORD PTR [rsp+0x30],0x0
    mov DWORD PTR [rsp+0x38],0x0
    mov QWORD PTR [rsp+0x40],r14
    mov BYTE PTR [rsp+0x7],0x18
    mov QWORD PTR [rsp+0x48],rbx
    mov QWORD PTR [rsp+0x50],0x20
    mov DWORD PTR [rsp+0x10],0x0
    mov BYTE PTR [rsp+0x14],0x1
    lea rax,[rsp+0x40]
    mov QWORD PTR [rsp+0x58],rax
    lea rax,[rsp+0x7]
    mov QWORD PTR [rsp+0x60],rax
    lea rax,[rsp+0x10]
    mov QWORD PTR [rsp+0x68],rax
    lea rax,[rsp+0x48]
    mov QWORD PTR [rsp+0x70],rax
    lea rdi,[rsp+0x18]
    lea rsi,[rsp+0x58]
    call _ZN8mlx5_wqe4send5batch14Batch$LT$T$GT$17push_slow_request
    mov rdi,QWORD PTR [rsp+0x18]
    mov esi,DWORD PTR [rsp+0x28]
    mov edx,DWORD PTR [rsp+0x2c]
    mov rcx,QWORD PTR [rsp+0x30]
    test rcx,rcx
    je 17
    mov eax,edx
    sub eax,DWORD PTR [rsp+0x24]
    cmp eax,0x1
    jne 15
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x20]
    cmp eax,0x1
    jne 16
    cmp DWORD PTR [rdi+0x6c],0x0
    je 17
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    je 17
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov rax,QWORD PTR [rdi+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rdi+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    movdqa xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movdqa XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 21
15:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    test rax,rax
    jne 18
    jmp 22
16:
    lea r8d,[rax-0x1]
    cmp r8d,DWORD PTR [rdi+0x6c]
    jae 17
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 19
17:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    test rax,rax
    je 22
18:
    xor r12d,r12d
    jmp 23
19:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov r8,QWORD PTR [rdi+0x38]
    mov WORD PTR [r8],dx
    mov rdx,QWORD PTR [rdi+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdx,QWORD PTR [rdi+0x20]
    cmp eax,0x2
    jne 20
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdx],xmm0
    movaps XMMWORD PTR [rdx+0x10],xmm1
    movaps XMMWORD PTR [rdx+0x20],xmm2
    movaps XMMWORD PTR [rdx+0x30],xmm3
    movdqa xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movdqa XMMWORD PTR [rdx+0x40],xmm0
    movaps XMMWORD PTR [rdx+0x50],xmm1
    movaps XMMWORD PTR [rdx+0x60],xmm2
    movaps XMMWORD PTR [rdx+0x70],xmm3
    jmp 21
20:
    mov rbx,rdi
    mov rdi,rdx
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rdi,rbx
21:
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
22:
    mov r12d,0x1
    mov rdx,QWORD PTR [rsp+0x8]
23:
    mov rax,r12
    add rsp,0x78
    pop rbx
    pop r12
    pop r14
    pop r15
    ret
    mov rbx,rax
    mov rdi,QWORD PTR [rsp+0x18]
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
